"""LaunchDescriptionSource: where an included launch description comes from."""

from __future__ import annotations

from . import logging
from .launch_context import LaunchContext
from .launch_description import LaunchDescription
from .some_substitutions_type import SomeSubstitutionsType
from .utilities import normalize_to_list_of_substitutions, perform_substitutions


class LaunchDescriptionSource:
    """A launch description, or the place to load it from once that is known."""

    def __init__(
        self,
        launch_description: LaunchDescription | None = None,
        location: SomeSubstitutionsType = '<string>',
        method: str = 'unspecified mechanism from a script',
    ) -> None:
        """Keep the description if there is one, and else its place."""
        self._launch_description = launch_description
        self._location = normalize_to_list_of_substitutions(location)
        self._expanded_location: str | None = None
        self.method = method

    def try_get_launch_description_without_context(self) -> LaunchDescription | None:
        """Load the description if its place is known before launching; else give None."""
        if self._launch_description is not None:
            return self._launch_description
        try:
            location = perform_substitutions(LaunchContext(), self._location)
            return self._get_launch_description(location)
        except Exception as error:
            # The place may hang on configurations that are only set while launching.
            logging.get_logger('launch.launch_description_source').debug(
                f'Failed to load the launch file without a context: {error}', exc_info=True
            )
            return None

    def get_launch_description(self, context: LaunchContext) -> LaunchDescription:
        """Load the description, once."""
        if self._expanded_location is None:
            self._expanded_location = perform_substitutions(context, self._location)
        if self._launch_description is None:
            self._launch_description = self._get_launch_description(self._expanded_location)
        return self._launch_description

    def _get_launch_description(self, location: str) -> LaunchDescription:
        raise RuntimeError('a LaunchDescriptionSource needs a launch description')

    @property
    def location(self) -> str:
        """The place: its path once it was loaded, before that a description."""
        if self._expanded_location is not None:
            return self._expanded_location
        return ' + '.join(str(substitution) for substitution in self._location)
