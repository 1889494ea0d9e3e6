"""The task *reach* on an arm: its observation from measurements, its actions to motors."""
