/** A test bench for a proxier: everything around it is fake, time included. */
import "../../../async/testing/test-yielder.ts";
import type { ConflictSummary } from "../../../model/owned-services.ts";
import { SyncJournal } from "../journal/sync-journal.ts";
import type { CostlyService } from "../portions.ts";
import { Proxier } from "../proxier.ts";
import type { ProxierOptions } from "../proxier-options.ts";
import { FakeBackend } from "./fake-backend.ts";
import { FakeClock } from "./fake-clock.ts";
import {
  FakeConntrack,
  RecordingHealth,
  RecordingLogger,
  RecordingMetrics,
  RecordingServiceHealth,
} from "./recorders.ts";

export class ProxierBench {
  readonly clock = new FakeClock();
  readonly backend = new FakeBackend(this.clock);
  readonly health = new RecordingHealth();
  readonly metrics = new RecordingMetrics();
  readonly serviceHealth = new RecordingServiceHealth();
  readonly conntrack = new FakeConntrack();
  readonly log = new RecordingLogger();
  readonly conflicts: ConflictSummary[] = [];
  readonly costly: CostlyService[] = [];
  readonly journal = new SyncJournal();
  readonly stop = new AbortController();
  readonly proxier: Proxier;

  constructor(periods: Partial<ProxierOptions["periods"]> = {}, more: Pick<ProxierOptions, "ending"> = {}) {
    this.proxier = new Proxier({
      nodeName: "node",
      backend: this.backend,
      metrics: this.metrics,
      health: this.health,
      serviceHealth: this.serviceHealth,
      conntrack: this.conntrack,
      periods: { minMs: 1000, syncMs: 30_000, ...periods },
      allowExternalIPs: true,
      clock: this.clock,
      log: this.log,
      onConflict: (conflict) => this.conflicts.push(conflict),
      onCostlyService: (costly) => this.costly.push(costly),
      journal: this.journal,
      ...more,
    });
  }

  /** Starts the loop and reports both resources as complete; returns after the first sync. */
  async start(): Promise<{ readonly loop: Promise<void> }> {
    const loop = this.proxier.run(this.stop.signal);
    this.proxier.onSynced("services");
    this.proxier.onSynced("endpointSlices");
    await this.clock.settle();
    return { loop };
  }

  /** Monotonic times at which syncs began. */
  get startTimes(): readonly number[] {
    return this.backend.calls.map(({ startMs }) => startMs);
  }
}
