"""Results for people: tables, pictures, reports, progress."""
