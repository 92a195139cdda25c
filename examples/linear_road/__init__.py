"""Linear Road: variable tolls on an expressway, from reports of its cars."""
