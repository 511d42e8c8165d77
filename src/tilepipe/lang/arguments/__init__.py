"""Arguments: tensor maps, launch preconditions, rules, and checks of what public members take."""
