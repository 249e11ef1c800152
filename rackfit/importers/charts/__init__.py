"""What charts and operators start servers from, one file each: ``fits`` says whether a document is theirs, ``commands`` what runs."""
