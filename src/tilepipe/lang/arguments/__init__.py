"""Arguments: tensor maps, launch preconditions, and checks of what public members receive."""
