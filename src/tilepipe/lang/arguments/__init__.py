"""Arguments: tensor maps, and checks of what public members take."""
