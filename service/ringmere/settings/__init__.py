"""The settings of an instance: one table, read once at start, passed downward as values.

``table`` is the table itself, ``kinds`` how a text becomes a value, ``load`` where the texts come from
(flag, then environment, then default) and ``show`` how people see them.
"""

from ringmere.settings.kinds import SettingError
from ringmere.settings.load import Loaded, load
from ringmere.settings.table import Row, Settings, rows

__all__ = ["Loaded", "Row", "SettingError", "Settings", "load", "rows"]
