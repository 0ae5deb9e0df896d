"""The game day: faults put one by one into a real installation, watched by a real Prometheus with the shipped alerts.

    python -m ops.gameday

For each fault the alerts that should fire do, no others, the commands of the runbooks show the cause, and the alerts
go when the fault has been ended as the runbook says; meanwhile the judge of ``ringmere verify`` counts what readers
lost. The record is ``ops/runbooks/GAMEDAY.md``.
"""
