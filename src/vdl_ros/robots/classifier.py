"""Whether a picture shows success, by a network in an ONNX file of ``train_success``."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.onnx_file import OnnxFileError, load_onnx, onnx_inputs, open_onnx
from vdl_ros.robots.contract import Contract, ContractError
from vdl_ros.robots.task import Measured

FORMAT = 1
#: Names of the input, pictures, uint8 [B, height, width, 3], and of the output, float32 [B].
PICTURE, PROBABILITY = 'picture', 'probability'


_Side = Annotated[int, msgspec.Meta(ge=16, le=1024)]


class ClassifierMetadata(msgspec.Struct, frozen=True):
    """What a program needs to classify, of the JSON text in a file.

    ``size`` is width and height of the pictures; from ``threshold`` on a probability is success.
    """

    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)]
    kind: Literal['success']
    size: tuple[_Side, _Side]
    threshold: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]


class Classifier:
    """A function from a picture of its size, uint8 [height, width, 3], to a probability.

    Raises:
        OnnxFileError: the bytes are none of ``train_success``, or onnxruntime is missing.
    """

    def __init__(self, data: bytes) -> None:
        self._session, self.metadata = open_onnx(data, ClassifierMetadata, 'train_success')
        width, height = self.metadata.size
        wanted = {PICTURE: ('uint8', (height, width, 3))}
        if (have := onnx_inputs(self._session)) != wanted:
            raise OnnxFileError(f'inputs: {have} are not {wanted}, those of its metadata')
        try:
            found = self._run(np.zeros((height, width, 3), np.uint8))
        # onnxruntime's own errors have no common class.
        except Exception as error:
            raise OnnxFileError(f'a black picture: {" ".join(str(error).split())[:200]}') from None
        if found.shape != (1,) or found.dtype != np.float32 or not np.isfinite(found).all():
            raise OnnxFileError(f'{PROBABILITY}: {found.dtype} {found.tolist()!r:.80} is not a '
                                'number of float32')

    def __call__(self, picture: NDArray[np.uint8]) -> float:
        return float(self._run(picture)[0])

    def _run(self, picture: NDArray[np.uint8]) -> NDArray[Any]:
        found: NDArray[Any] = self._session.run([PROBABILITY], {PICTURE: picture[None]})[0]
        return found


class SuccessInPictures:
    """Success of one episode at a time, by a classifier, from the pictures of its steps.

    The classifier has to say so at as many ticks in a row as the contract says. Before that it has
    to deny it as often: at the beginning of an episode nothing is reached.
    """

    def __init__(self, classifier: Classifier, contract: Contract, log: Callable[[str], None],
                 clock: Callable[[], float]) -> None:
        assert contract.success is not None
        self._classifier, self._file = classifier, contract.success.classifier
        self._image, self._times = contract.success.image, contract.success.times
        self._log, self._clock, self._logged = log, clock, -math.inf
        self._verdict, self._same, self._has_denied = False, 0, False

    def begin(self, measured: Measured) -> None:
        self._same, self._has_denied = 0, False
        self.is_reached(measured)

    def is_reached(self, measured: Measured) -> bool:
        """Return whether the episode has succeeded; called once for each step."""
        verdict = self._shows(measured.images[self._image])
        self._same = self._same + 1 if verdict == self._verdict else 1
        self._verdict = verdict
        if self._same < self._times:
            return False
        if verdict and not self._has_denied and self._clock() - self._logged >= _AGAIN_S:
            self._logged = self._clock()
            self._log(f'{self._file} says success from the beginning of an '
                      'episode on: that is not counted, before it says otherwise')
        self._has_denied |= not verdict
        return verdict and self._has_denied

    def _shows(self, picture: NDArray[np.uint8]) -> bool:
        return self._classifier(colored(picture)) >= self._classifier.metadata.threshold


# Time between lines about a classifier that says success too early, s.
_AGAIN_S = 60.0


def classifier_of(contract: Contract) -> Classifier | None:
    """Return the classifier of a contract; ContractError: its file cannot be used."""
    if contract.classifier is None:
        return None
    assert contract.success is not None
    try:
        found = load_classifier(contract.classifier)
    except OnnxFileError as error:
        raise ContractError(f'{contract.name}.yaml: success: classifier: {error}') from None
    image = contract.image(contract.success.image)
    if image.size != found.metadata.size:
        raise ContractError(
            f'{contract.name}.yaml: success: image: {image.name} of size {list(image.size or ())} '
            f'is not allowed: {list(found.metadata.size)}, as of {contract.success.classifier}')
    return found


def load_classifier(path: Path) -> Classifier:
    """Return the classifier of a file; OnnxFileError: one line that names the file."""
    return load_onnx(path, Classifier)


def colored(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture, uint8 [height, width, 1 or 3], with three channels."""
    return np.broadcast_to(picture, (*picture.shape[:2], 3))
