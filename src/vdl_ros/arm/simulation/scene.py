"""The MuJoCo model: the arm from its URDF, on the table of config/mujoco/scene.xml.

No lengths here. Added is what a URDF cannot express: actuators, the lamp's light, the camera,
allowed contacts. Names of the arm's bodies, joints, materials have the prefix ``arm/``.
"""

import dataclasses
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.geometry import CUBE_COLOUR, EDGE, ArmGeometry, GeometryError, load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.files import find_resource

# Earlier ones have no MjSpec, or other arguments of its functions.
if tuple(map(int, mujoco.__version__.split('.')[:2])) < (3, 10):
    raise ImportError(f'the simulated arm requires mujoco>=3.10, installed is '
                      f'{mujoco.__version__}')

PREFIX = 'arm/'
CAMERA = PREFIX + 'camera'
#: Reflected inertia of motor and gears, kg m^2; it outweighs that of the links.
ROTOR_INERTIA = 0.001
#: Name of the body of the cube, which a scene may have on its table.
CUBE = 'cube'
# Natural frequency of a joint without load, rad/s: rigid gears would need tiny steps.
UNLOADED_RATE = 60.0


@dataclasses.dataclass(frozen=True)
class Scene:
    """A compiled ``mujoco.MjModel`` and the indices of the arm's joints in it.

    ``qpos`` and ``dof`` are the indices of the five joints in ``data.qpos`` and ``data.qvel``,
    int [5]; ``actuators`` in ``data.ctrl``. ``load`` is the torque of gravity on each joint with
    the arm stretched out, float64 [5], N m, 0 for joints without it; ``inertia`` the inertia about
    each joint with the arm upright, float64 [5], kg m^2.
    """

    model: Any
    geometry: ArmGeometry
    qpos: NDArray[np.int64]
    dof: NDArray[np.int64]
    actuators: NDArray[np.int64]
    load: NDArray[np.float64]
    inertia: NDArray[np.float64]

    def set_positions(self, data: Any, positions: NDArray[np.float64]) -> None:
        """Place the arm at ``positions``, float64 [5], rad, at rest, and update derived values."""
        data.qvel[:] = 0.0
        self.write_positions(data.qpos[None], np.asarray(positions)[None])
        mujoco.mj_forward(self.model, data)

    def write_positions(self, qpos: NDArray[np.float64], positions: NDArray[np.float64]) -> None:
        """Write positions, float64 [N, 5], rad, to rows of ``qpos``, also of mimicking joints."""
        qpos[:, self.qpos] = positions
        for joint in self.geometry.joints.values():
            if joint.mimic:
                address = self.model.joint(PREFIX + joint.name).qposadr[0]
                others = positions[:, JOINTS.index(joint.mimic)]
                qpos[:, address] = others * joint.multiplier + joint.offset

    def gears(self, sag: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return stiffness and damping of the gears, each float64 [..., 5], N m/rad and N m s/rad.

        ``sag`` is the deflection of a joint under ``load``, float64 [...], rad.
        """
        loaded = self.load / np.asarray(sag, np.float64)[..., None]
        stiffness = np.where(self.load > 0.0, loaded, self.inertia * UNLOADED_RATE**2)
        return stiffness, 2.0 * np.sqrt(stiffness * self.inertia)  # critical

    def stiffen(self, sag: float) -> NDArray[np.float64]:
        """Set how far loaded joints sag, rad; return the stiffness, float64 [5], N m/rad."""
        stiffness, damping = self.gears(sag)
        self.model.actuator_gainprm[self.actuators, 0] = stiffness
        self.model.actuator_biasprm[self.actuators, 1] = -stiffness
        self.model.actuator_biasprm[self.actuators, 2] = -damping
        return stiffness


def build_scene(
    geometry: ArmGeometry | None = None, *, field_of_view: float = 0.75,
    furnish: Callable[[Any], None] | None = None,
) -> Scene:
    """Return the scene: the arm on its table; GeometryError: MuJoCo cannot make a model of it.

    Args:
        geometry: the arm; by default that of the package.
        field_of_view: the camera's vertical one, rad.
        furnish: called with the ``mujoco.MjSpec``, to add objects.
    """
    geometry = geometry or load()
    try:
        spec = mujoco.MjSpec.from_file(str(find_resource('config/mujoco/scene.xml')))
        spec.attach(_arm(geometry, field_of_view), frame=spec.worldbody.add_frame(), prefix=PREFIX)
        if furnish is not None:
            furnish(spec)
        spec.option.timestep = 0.004
        # Implicit in velocity: the gears' damping is large against the links' inertia.
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        model = spec.compile()
    except (ValueError, RuntimeError, OSError, mujoco.FatalError) as error:
        raise GeometryError('MuJoCo: ' + ' '.join(str(error).split())) from error
    joints = [model.joint(PREFIX + name) for name in JOINTS]
    scene = Scene(
        model, geometry, qpos=np.array([joint.qposadr[0] for joint in joints]),
        dof=np.array([joint.dofadr[0] for joint in joints]),
        actuators=np.array([model.actuator(PREFIX + name).id for name in JOINTS]),
        load=np.zeros(len(JOINTS)), inertia=np.zeros(len(JOINTS)))
    data = mujoco.MjData(model)
    scene.set_positions(data, np.zeros(len(JOINTS)))
    mass = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, mass)
    stretched = np.zeros(len(JOINTS))
    stretched[JOINTS.index('shoulder')] = min(math.pi / 2, geometry.upper[1])
    scene.set_positions(data, stretched)
    torque = np.abs(data.qfrc_bias[scene.dof])
    # A vertical axis, or balanced fingers, give rounding errors instead of 0.
    return dataclasses.replace(
        scene, load=np.where(torque > 0.01, torque, 0.0), inertia=np.diag(mass)[scene.dof])


def add_cube(spec: Any) -> None:
    """Add the cube to a ``mujoco.MjSpec``, and what the gripper needs to hold it."""
    body = spec.worldbody.add_body(name=CUBE, pos=[0.2, 0.0, EDGE / 2.0])
    body.add_freejoint()
    # With the priority it is the cube's friction that counts.
    geom = body.add_geom(name=CUBE, type=mujoco.mjtGeom.mjGEOM_BOX, size=[EDGE / 2.0] * 3,
                         mass=0.03, rgba=(*CUBE_COLOUR, 1.0), priority=1)
    geom.friction[0] = 0.6
    # With MuJoCo's default, pyramids, a held cube creeps out of the fingers within seconds.
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10.0


def cube_address(model: Any) -> slice | None:
    """Return where the cube's pose is in ``data.qpos``, m and a quaternion wxyz; None: no cube."""
    if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, CUBE) < 0:
        return None
    first = model.jnt_qposadr[model.body(CUBE).jntadr[0]]
    return slice(first, first + 7)


def cube_pose(x: float, y: float, angle: float) -> NDArray[np.float64]:
    """Return the pose of a cube on the table, float64 [7], turned about the vertical axis, rad."""
    return np.array([x, y, EDGE / 2.0, math.cos(angle / 2.0), 0.0, 0.0, math.sin(angle / 2.0)])


def _arm(geometry: ArmGeometry, field_of_view: float) -> Any:
    robot = ElementTree.fromstring(geometry.urdf)
    extension = ElementTree.SubElement(robot, 'mujoco')
    # Without these MuJoCo discards visual geoms and frames without mass.
    ElementTree.SubElement(
        extension, 'compiler', {'discardvisual': 'false', 'fusestatic': 'false'})
    spec = mujoco.MjSpec.from_string(ElementTree.tostring(robot, encoding='unicode'))
    _add_materials(spec, robot)
    for geom in spec.geoms:
        if geom.contype:
            geom.group = 3  # collision shapes are not drawn
    for joint in geometry.joints.values():
        if joint.type != 'fixed':
            spec.joint(joint.name).armature = ROTOR_INERTIA
    for equality in spec.equalities:
        # Mimicking joints are geared: as stiff as the physics step allows.
        equality.solref[0] = 0.001
        equality.solimp[:2] = 0.99, 0.999
    for name in JOINTS:
        actuator = spec.add_actuator(name=name, target=name)
        actuator.trntype = mujoco.mjtTrn.mjTRN_JOINT
        actuator.set_to_position(kp=1.0, kv=1.0)  # see Scene.stiffen
    # Parts that touch by design: nested ones, and the closed finger tips.
    for one, other in (('base_link', 'turntable'), ('base_link', 'upper_arm'),
                       ('left_finger', 'right_finger')):
        spec.add_exclude(bodyname1=one, bodyname2=other)
    spec.body('lamp').add_light(
        name='lamp', type=mujoco.mjtLightType.mjLIGHT_SPOT, dir=[0, 0, 1], cutoff=40.0,
        exponent=6.0, diffuse=[0.9, 0.9, 0.85], castshadow=False, active=False)
    # MuJoCo's cameras look along -z with y up: half a turn about x from the optical frame.
    spec.body('camera_optical_frame').add_camera(
        name='camera', quat=[0, 1, 0, 0], fovy=math.degrees(field_of_view))
    return spec


def _add_materials(spec: Any, robot: ElementTree.Element) -> None:
    """Make each colour of the URDF a named material, so that it can be changed in one place."""
    names: dict[tuple[float, ...], str] = {}
    for material in robot.iter('material'):
        color = material.find('color')
        if color is not None:
            rgba = tuple(round(float(word), 4) for word in color.get('rgba', '').split())
            names.setdefault(rgba, material.get('name', ''))
    for rgba, name in names.items():
        spec.add_material(name=name, rgba=rgba, specular=0.35, shininess=0.5)
    for geom in spec.geoms:
        name = names.get(tuple(round(float(value), 4) for value in geom.rgba), '')
        if name and not geom.contype:
            geom.material = name
            geom.rgba = [0.5, 0.5, 0.5, 1.0]  # MuJoCo's default, which a material overrides


# Penetration of parts that is allowed, m.
MAX_DEPTH = 0.001


class CollisionChecker:
    """Finds the poses in which the arm would be inside itself or something else of its scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        model = scene.model
        self._data: Any = mujoco.MjData(model)
        self._arm = np.array([
            model.body(model.geom_bodyid[geom]).name.startswith(PREFIX)
            for geom in range(model.ngeom)])

    def collides(self, positions: ArrayLike) -> NDArray[np.bool_]:
        """Return whether poses collide, bool [N]; ``positions`` is float64 [N, 5], rad."""
        return np.array([bool(pairs) for pairs in self._pairs(positions)], np.bool_)

    def collision(self, positions: ArrayLike) -> str:
        """Return what is inside what at ``positions``, float64 [5], rad; '' if nothing is."""
        pairs = next(self._pairs(np.asarray(positions)[None]))
        if not pairs:
            return ''
        # The static part comes first; the table has no body of its own.
        (fixed, _), model = pairs[0], self.scene.model
        other, part = (model.body(model.geom_bodyid[geom]).name.removeprefix(PREFIX)
                       for geom in pairs[0])
        return f'{part} would be inside {model.geom(fixed).name if other == "world" else other}'

    def _pairs(self, positions: ArrayLike) -> Iterator[list[list[int]]]:
        """Yield for each pose the pairs of geoms that are inside each other."""
        model, data = self.scene.model, self._data
        poses = np.asarray(positions, np.float64)
        qpos = np.tile(model.qpos0, (len(poses), 1))
        self.scene.write_positions(qpos, poses)
        for values in qpos:
            data.qpos[:] = values
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)  # the search for contacts needs it
            mujoco.mj_collision(model, data)
            if not data.ncon:
                yield []
                continue
            geoms = data.contact.geom
            deep = data.contact.dist < -MAX_DEPTH
            yield geoms[deep & self._arm[geoms].any(axis=1)].tolist()
