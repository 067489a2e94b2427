"""What all workers share: tasks, breakers, queues, schedules, and the workers themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path

from holdfast.app import App
from holdfast.app.messages import decode_arguments
from holdfast.app.task import checked_name
from holdfast.errors import Invalid, NotFound, UnknownTask
from holdfast.ops.api import schemas
from holdfast.ops.api.asking import Asker, FleetOperator, FleetViewer, Viewer
from holdfast.ops.api.openapi import changes, looks
from holdfast.ops.api.shapes import breaker_of, schedule_of, task_of, worker_of
from holdfast.ops.redact import HIDDEN, redacted_text
from holdfast.runtime.inbox import encoded_arguments
from holdfast.runtime.spec import TaskSpec

router = APIRouter(tags=["fleet"])

Name = Annotated[str, Path(min_length=1, max_length=200, description="Its name; a slash in it is sent as %2F.")]
Key = Annotated[str, Path(min_length=1, max_length=200, description="The breaker's key; a slash is sent as %2F.")]


@router.get("/tasks", responses=looks())
async def list_tasks(asker: Viewer) -> schemas.TaskList:
    """Every task that this server's app has registered, by name."""
    specs = sorted(asker.app.specs.items())
    items = [task_of(spec, asker.server.form_of(name) or {}) for name, spec in specs]
    return schemas.TaskList.model_construct(items=items)


@router.post("/tasks/{name:path}/validate", responses=changes(404))
async def validate_arguments(asker: Viewer, name: Name, asked: schemas.ValidateRequest) -> schemas.ValidateAnswer:
    """Whether these arguments fit the task's types, or are a letter of the stream's; nothing is stored."""
    if name not in asker.app.specs and name not in asker.app.stream_specs:
        raise UnknownTask(f"no task is named {name!r} here")
    arguments = asked.arguments
    if name in asker.app.stream_specs:  # what is hidden of a letter cannot be checked; the stored one is sent
        arguments = {key: value for key, value in arguments.items() if value != HIDDEN}
    try:
        decode_arguments(asker.app, name, encoded_arguments(arguments))
    except Invalid as error:
        problem = schemas.FieldProblem(where="arguments", message=redacted_text(str(error)))
        return schemas.ValidateAnswer(is_valid=False, errors=[problem])
    return schemas.ValidateAnswer(is_valid=True, errors=[])


@router.get("/breakers", responses=looks())
async def list_breakers(asker: FleetViewer) -> schemas.BreakerList:
    """Every breaker of the app, and those that have counted a failure or were changed by hand."""
    return await breakers_of(asker)


async def breakers_of(asker: Asker) -> schemas.BreakerList:
    """Every breaker, by key."""
    views = await asker.app.breakers.alist()
    specs = guarded_specs(asker.app)
    return schemas.BreakerList.model_construct(items=[breaker_of(view, specs) for view in views])


def guarded_specs(app: App) -> Mapping[str, TaskSpec]:
    """Everything that a breaker may guard, by name: tasks, and the handlers of streams."""
    return app.specs | {name: stream.task for name, stream in app.stream_specs.items()}


@router.post("/breakers/{key:path}/reset", responses=changes(404))
async def reset_breaker(asker: FleetOperator, key: Key) -> schemas.BreakerAnswer:
    """Close it, whatever it was."""
    await found_breaker(asker, key)
    await asker.app.breakers.areset(key)
    await asker.audit("breaker.reset", key)
    return await found_breaker(asker, key)


@router.post("/breakers/{key:path}/force-open", responses=changes(404))
async def force_breaker_open(asker: FleetOperator, key: Key) -> schemas.BreakerAnswer:
    """Hold it open until it is reset; 409 while it is disabled."""
    await found_breaker(asker, key)
    await asker.app.breakers.aforce_open(key)
    await asker.audit("breaker.force-open", key)
    return await found_breaker(asker, key)


@router.post("/breakers/{key:path}/disable", responses=changes(404))
async def disable_breaker(asker: FleetOperator, key: Key) -> schemas.BreakerAnswer:
    """Let everything through until it is reset; 409 while it is forced open."""
    await found_breaker(asker, key)
    await asker.app.breakers.adisable(key)
    await asker.audit("breaker.disable", key)
    return await found_breaker(asker, key)


async def found_breaker(asker: Asker, key: str) -> schemas.BreakerAnswer:
    """The breaker with this key; NotFound where neither the app nor the store has one."""
    for view in await asker.app.breakers.alist():
        if view.key == key:
            return breaker_of(view, guarded_specs(asker.app))
    raise NotFound(f"no breaker has the key {key!r}")


@router.get("/queues", responses=looks())
async def list_queues(asker: FleetViewer) -> schemas.QueueList:
    """The queues that there are jobs in, or that are paused."""
    overview = await asker.server.live.overview()
    return schemas.QueueList.model_construct(items=overview.queues)


@router.post("/queues/{name:path}/pause", responses=changes(404))
async def pause_queue(asker: FleetOperator, name: Name) -> schemas.QueueAnswer:
    """Start none of its jobs until it is resumed; what runs goes on."""
    await asker.app.queues.apause(checked_name("name", name))
    await asker.audit("queue.pause", name)
    return await _queue(asker, name)


@router.post("/queues/{name:path}/resume", responses=changes(404))
async def resume_queue(asker: FleetOperator, name: Name) -> schemas.QueueAnswer:
    """Start its jobs again."""
    await asker.app.queues.aresume(checked_name("name", name))
    await asker.audit("queue.resume", name)
    return await _queue(asker, name)


async def _queue(asker: Asker, name: str) -> schemas.QueueAnswer:
    overview = await asker.server.live.overview(is_fresh=True)
    for queue in overview.queues:
        if queue.name == name:
            return queue
    return schemas.QueueAnswer(name=name, is_paused=False, depth=0, states={}, lag_s=None)


@router.get("/workers", responses=looks())
async def list_workers(asker: FleetViewer) -> schemas.WorkerList:
    """Every worker that is alive."""
    stats = await asker.app.store.stats()
    workers = sorted(stats.workers, key=lambda one: (one.host, one.started_at, one.id))
    return schemas.WorkerList.model_construct(items=[worker_of(worker) for worker in workers])


@router.get("/schedules", responses=looks())
async def list_schedules(asker: FleetViewer) -> schemas.ScheduleList:
    """Every schedule of this server's app."""
    found = await asker.app.schedules.alist()
    return schemas.ScheduleList.model_construct(items=[schedule_of(status) for status in found])


@router.post("/schedules/{name:path}/pause", responses=changes(404))
async def pause_schedule(asker: FleetOperator, name: Name) -> schemas.ScheduleAnswer:
    """Fire none of its ticks until it is resumed."""
    _known_schedule(asker, name)
    await asker.app.schedules.apause(name)
    await asker.audit("schedule.pause", name)
    return await _schedule(asker, name)


@router.post("/schedules/{name:path}/resume", responses=changes(404))
async def resume_schedule(asker: FleetOperator, name: Name) -> schemas.ScheduleAnswer:
    """Fire its ticks again, from the next one on."""
    _known_schedule(asker, name)
    await asker.app.schedules.aresume(name)
    await asker.audit("schedule.resume", name)
    return await _schedule(asker, name)


def _known_schedule(asker: Asker, name: str) -> None:
    if name not in asker.app.scheduled:
        raise NotFound(f"no schedule is named {name!r} here")


async def _schedule(asker: Asker, name: str) -> schemas.ScheduleAnswer:
    return next(schedule_of(status) for status in await asker.app.schedules.alist() if status.name == name)
