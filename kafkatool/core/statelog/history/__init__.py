"""What happened: observations of each broker become facts, facts become a timeline and a report."""
