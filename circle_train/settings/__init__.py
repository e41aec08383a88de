"""What is trained and how: the config, the ways in which files hold it, and the parameters that it means."""
