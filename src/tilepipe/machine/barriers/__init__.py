"""Barriers of the machine: mbarriers, named barriers, cluster barriers."""
