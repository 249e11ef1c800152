"""What to buy, and what runs on it when: whole units for a rate, and units through the hours of a day"""
