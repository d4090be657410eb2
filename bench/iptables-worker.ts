/** One size of `npm run bench` with one back end, in this process's network namespace. */
import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { binariesOf } from "../src/kernel/iptables/testing/binaries.ts";
import { type Exec, execProcess } from "../src/kernel/process.ts";
import type { PlanConfig, PlanFacts } from "../src/modes/iptables/plan-options.ts";
import { planServicePort } from "../src/modes/iptables/plan-service-port.ts";
import { planStatic } from "../src/modes/iptables/plan-static.ts";
import { droppedChains } from "../src/modes/shared/iptables-rules/delta-payload.ts";
import { fullPayload } from "../src/modes/shared/iptables-rules/full-payload.ts";
import { type SpelledRules, spell } from "../src/modes/shared/iptables-rules/owner-rules.ts";
import { textsOf } from "../src/modes/shared/iptables-rules/payload.ts";
import { type BackEnd, benchConfig, iptablesBackend, openIptables } from "./backends.ts";
import { type IptablesTask, PLANNING } from "./iptables.ts";
import { memoryNow, ownCpuMs, resetPeak, settledMemory, toolsCpuMs } from "./memory.ts";
import { Subject } from "./subject.ts";
import { type Figures, median, Notes, timed } from "./table.ts";

const EMPTY = "*mangle\nCOMMIT\n*nat\nCOMMIT\n*filter\nCOMMIT\n";

/** A step exceeded its limit; its tool has been killed. */
class StepLimitError extends Error {
  override readonly name = "StepLimitError";
}

/** Runs the host's tools as the program does, and measures them. Milliseconds. */
class MeasuredExec {
  /** Lifetime of the iptables-restore processes, and processor time of this thread meanwhile: writing the payload. */
  restoreMs = 0;
  writeCpuMs = 0;
  /** Processor time of the other tools. */
  otherCpuMs = 0;
  /** The input of iptables-restore; the payloads here are ASCII. */
  texts: string[] = [];
  /** Whether running tools is only simulated: every command succeeds at once and every dump is empty. */
  isPretending = false;
  #endMs = Number.POSITIVE_INFINITY;

  /** Begins a sync; from now on tools may run for this long. */
  begin(limitMs: number): void {
    [this.restoreMs, this.writeCpuMs, this.otherCpuMs, this.texts] = [0, 0, 0, []];
    this.#endMs = performance.now() + limitMs;
  }

  readonly exec: Exec = async (file, args, { stdin, ...options } = {}) => {
    const leftMs = this.#endMs - performance.now();
    if (leftMs <= 0) throw new StepLimitError(`${file}: no time left`);
    const { texts, isPretending } = this;
    function* noted(chunks: Iterable<string>): Iterable<string> {
      for (const chunk of chunks) {
        texts.push(chunk);
        yield chunk;
      }
    }
    const input = stdin && noted(stdin);
    // The real tool is always asked what it can do. Its processor time would be as much as planning a change.
    if (isPretending && !args.includes("--version")) {
      for (const _ of input ?? []);
      return { status: 0, stdout: "", stderr: "" };
    }
    const before = { ms: performance.now(), own: ownCpuMs(), tools: toolsCpuMs() };
    const timeoutMs = Number.isFinite(leftMs) && { timeoutMs: Math.ceil(leftMs) };
    const result = await execProcess(file, args, { ...options, ...timeoutMs, ...(input && { stdin: input }) });
    if (args.includes("--noflush")) {
      this.restoreMs += performance.now() - before.ms;
      this.writeCpuMs += ownCpuMs() - before.own;
    } else this.otherCpuMs += toolsCpuMs() - before.tools;
    if (result.status === -1 && performance.now() >= this.#endMs) throw new StepLimitError(`${file}: out of time`);
    return result;
  };
}

/** @returns milliseconds elapsed and of processor time; undefined if it was killed at the limit. Rejects with its error output. */
async function restoreAlone(backEnd: BackEnd, file: string, limitMs: number, options: readonly string[]) {
  const tool = binariesOf("IPv4", backEnd).restore;
  const text = openSync(file, "r");
  const before = { ms: performance.now(), cpuMs: toolsCpuMs() };
  const child = spawn(tool, options, { stdio: [text, "ignore", "inherit"], timeout: limitMs, killSignal: "SIGKILL" });
  closeSync(text);
  const outcome = await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => resolve(signal ?? status));
  });
  if (outcome === "SIGKILL") return undefined;
  if (outcome !== 0) throw new Error(`${tool} ended with ${outcome}`);
  return { ms: performance.now() - before.ms, cpuMs: toolsCpuMs() - before.cpuMs };
}

const CONFIG: PlanConfig = { ...benchConfig(), localhostNodePorts: false, conntrackLiberal: false };
const FACTS: PlanFacts = {
  zone: undefined,
  nodePortIPs: { kind: "all" },
  counters: { ctStateInvalid: false, localhostNodePorts: false },
  isLargeCluster: true,
};

/** What upstream sends for a change: shared chains in full, own chains of changed ports only (reference iptables-operation.md §9.3). */
class UpstreamText {
  readonly #state: Subject["state"];
  readonly #static = planStatic(CONFIG, FACTS);
  readonly #ports = new Map<string, SpelledRules>();

  constructor(state: Subject["state"]) {
    this.#state = state;
    for (const key of state.services.keys()) this.#plan(key);
  }

  of(changedPorts: ReadonlySet<string>): string {
    const staleChains = [...changedPorts].flatMap((owner) =>
      droppedChains({ owner, before: this.#ports.get(owner), after: this.#plan(owner) }),
    );
    const ports = [...this.#ports].map(([owner, plan]) => {
      const written = changedPorts.has(owner) ? plan : { ...plan, ownChains: "", ownRules: "", ownRuleCount: 0 };
      return [owner, written] as const;
    });
    return [...textsOf(fullPayload({ plan: this.#static, ports, staleChains }).transactions)].join("");
  }

  #plan(key: string): SpelledRules | undefined {
    const port = this.#state.services.get(key);
    if (port === undefined) return undefined;
    const plan = spell(planServicePort(port, this.#state.endpoints.get(key) ?? [], CONFIG, FACTS));
    this.#ports.set(key, plan);
    return plan;
  }
}

/**
 * Our own work in a first sync may take this much of the time of iptables-restore alone; processor time, so that a busy
 * machine decides nothing. Judged from this many services on: below, a first sync is mostly fixed cost, starting the other
 * tools and an engine that has not compiled anything yet, next to an iptables-restore of a few dozen milliseconds.
 */
const OWN_WORK_PART = 0.25;
const OWN_WORK_FROM = 5000;

export async function measureIptables(task: IptablesTask): Promise<Figures> {
  const { backEnd, services, endpointsEach, changes, plannings, limitMs } = task;
  const notes = new Notes();
  const exec = new MeasuredExec();
  const nftReader = async () => {
    const reader = await import("../src/kernel/iptables/nft-chains.ts");
    const nftChainUses: typeof reader.nftChainUses = async (...args) =>
      exec.isPretending ? new Map() : await reader.nftChainUses(...args);
    return { ...reader, nftChainUses };
  };
  const iptables = await openIptables(backEnd, exec.exec, nftReader);
  const subject = new Subject(endpointsEach, () => iptablesBackend(iptables));
  subject.load(services);
  const { rssMb: modelMb } = await settledMemory();
  let cutOff: string | undefined;
  /** A step that exceeds its limit is reported. After that, no more tools run. */
  const attempt = async (what: string, step: () => Promise<void>): Promise<void> => {
    if (cutOff !== undefined) return;
    exec.begin(limitMs);
    try {
      await step();
    } catch (error) {
      if (!(error instanceof StepLimitError)) throw error;
      cutOff = `${what}: ${error.message}`;
    }
  };
  /** @returns the changed ports, and milliseconds of everything except iptables-restore. */
  const change = async (make: () => void): Promise<readonly [ReadonlySet<string>, number]> => {
    exec.begin(limitMs);
    const startMs = performance.now();
    make();
    const { changedPorts } = subject.state.applyChanges();
    await subject.sync(false, changedPorts);
    return [changedPorts, performance.now() - startMs - exec.restoreMs + exec.writeCpuMs];
  };
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-"));
  const file = join(folder, "payload");
  const alone = async (payload: string, ...options: string[]) => {
    writeFileSync(file, payload);
    return await restoreAlone(backEnd, file, limitMs, options);
  };
  try {
    resetPeak();
    let ownMs: number | undefined;
    const before = ownCpuMs();
    await attempt("first sync", async () => {
      await subject.fullSync();
      ownMs = ownCpuMs() - before + exec.otherCpuMs;
      notes.add("first sync: processor time, own and of tools but iptables-restore", ownMs);
      notes.add("  iptables-restore, by the clock", exec.restoreMs);
    });
    const text = exec.texts.join("");
    notes.add("  sent, kB", text.length / 1000);
    notes.add("resident MB: with the model", modelMb);
    notes.add("  peak in the first sync", memoryNow().peakMb);
    notes.add("  settled", (await settledMemory()).rssMb);
    if (changes > 0) {
      const upstream = new UpstreamText(subject.state);
      const makes: Readonly<Record<string, (n: number) => void>> = {
        "endpoint replaced": (n) => subject.replaceEndpoint(subject.scattered(n)),
        "service added": (n) => subject.setService(services + n, "add"),
        "service removed": (n) => subject.setService(services + n, "delete"),
      };
      for (const [kind, make] of Object.entries(makes)) {
        const [ours, theirs, own]: [number[], number[], number[]] = [[], [], []];
        await attempt(kind, async () => {
          for (let n = 0; n < changes; n += 1) {
            const [changedPorts, took] = await change(() => make(n));
            own.push(took);
            ours.push(exec.restoreMs);
            if (kind !== "endpoint replaced") continue;
            // In turns, so that a machine that gets busier affects both.
            const other = await alone(upstream.of(changedPorts), "--noflush", "--counters");
            if (other !== undefined) theirs.push(other.ms);
          }
        });
        if (ours.length > 0) notes.add(`${kind}: iptables-restore`, median(ours));
        if (theirs.length > 0) notes.add("  with the text that kube-proxy sends", median(theirs));
        if (own.length > 0) notes.add(`${kind}: everything but that`, median(own));
      }
      await attempt("restart", async () => {
        subject.restart();
        notes.add("restart with nothing changed", await timed(() => subject.fullSync()));
      });
    }
    // Into tables as empty as for the first sync. A run that is cut off counts as its limit.
    let aloneCpuMs = limitMs;
    if (ownMs !== undefined) {
      await alone(EMPTY);
      const took = await alone(text, "--noflush", "--counters");
      aloneCpuMs = took?.cpuMs ?? limitMs;
      notes.add("iptables-restore alone, by the clock", took?.ms);
      notes.add("  processor time", took?.cpuMs);
    }
    if (plannings > 0) {
      exec.isPretending = true;
      subject.restart();
      exec.begin(limitMs);
      const startMs = ownCpuMs();
      await subject.fullSync();
      ownMs ??= ownCpuMs() - startMs;
      const samples: number[] = [];
      // Until the engine has compiled what it will run.
      for (let n = 0; n < plannings; n += 1) await change(() => subject.replaceEndpoint(subject.scattered(n)));
      globalThis.gc?.();
      for (let n = 0; n < plannings; n += 1) {
        samples.push((await change(() => subject.replaceEndpoint(subject.scattered(n + 13))))[1]);
      }
      notes.add(PLANNING, median(samples));
    }
    const wanted = services < OWN_WORK_FROM ? undefined : OWN_WORK_PART;
    if (ownMs !== undefined)
      notes.add("first sync, of iptables-restore alone, processor time", ownMs / aloneCpuMs, wanted);
    notes.add("cut off", cutOff);
    return notes.figures;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
