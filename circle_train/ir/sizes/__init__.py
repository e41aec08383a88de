"""What sizes that are open are written as, what is known of them, and who is asked."""
