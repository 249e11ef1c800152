"""What every order of requests has to carry: the bound of answers for traffic."""
