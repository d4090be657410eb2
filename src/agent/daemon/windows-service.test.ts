/** What the program reports to the service control manager, and what its commands do. Under Wine: test/windows. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SERVICE_CONTROLS, type ServiceCalls } from "../../kernel/windows/service-calls.ts";
import { silentLogger } from "../../logging/logger.ts";
import { WindowsService } from "./windows-service.ts";

/** A manager that starts a service, or knows none. */
class Manager implements ServiceCalls {
  readonly told: string[] = [];
  control: (code: number) => void = () => {};
  readonly #isThere: boolean;
  #over: (wasThere: boolean) => void = () => {};

  constructor(isThere = true) {
    this.#isThere = isThere;
  }

  dispatch(service: Parameters<ServiceCalls["dispatch"]>[0]): Promise<boolean> {
    if (!this.#isThere) return Promise.resolve(false);
    this.control = (code) => service.control(code);
    setImmediate(() => service.main());
    return new Promise((resolve) => {
      this.#over = resolve;
    });
  }

  report(...[state, waitHintMs]: Parameters<ServiceCalls["report"]>): void {
    this.told.push(waitHintMs === 0 ? state : `${state} ${waitHintMs}`);
    if (state === "stopped") this.#over(true);
  }
}

async function startWith(calls: Manager) {
  const reasons: string[] = [];
  const service = await WindowsService.start({
    calls,
    log: () => silentLogger,
    stopLimitMs: () => 5_000,
    onStop: (reason) => void reasons.push(reason),
  });
  return { service, reasons };
}

test("a service runs, is told to stop, and says that it has", async () => {
  const manager = new Manager();
  const { service, reasons } = await startWith(manager);
  assert.deepEqual(manager.told, ["startPending", "running"]);
  manager.control(SERVICE_CONTROLS.stop);
  assert.deepEqual(reasons, ["service stop"]);
  manager.control(SERVICE_CONTROLS.interrogate);
  await service.ended(0);
  assert.deepEqual(manager.told.slice(2), ["stopPending 7000", "stopPending 7000", "stopped"]);
});

test("it stops with the system, says how it is when asked, and passes over words that it does not know", async () => {
  const manager = new Manager();
  const { reasons } = await startWith(manager);
  manager.control(SERVICE_CONTROLS.interrogate);
  manager.control(SERVICE_CONTROLS.paramChange);
  manager.control(200);
  assert.deepEqual([manager.told.slice(2), reasons], [["running", "running"], []]);
  manager.control(SERVICE_CONTROLS.shutdown);
  assert.deepEqual(reasons, ["system shutdown"]);
});

test("after a failure the manager is not told of an end, so that it starts the service again", async () => {
  const manager = new Manager();
  const { service } = await startWith(manager);
  await service.ended(1);
  assert.deepEqual(manager.told, ["startPending", "running"]);
});

test("a process that the manager did not start ends with words that say so", async () => {
  await assert.rejects(startWith(new Manager(false)), /did not start this process: .*sc\.exe start kube-proxy/);
});
