/**
 * Defines metric families the way Kubernetes components present them: help texts state the family's stability, families
 * without a sample are not printed, and definitions are counted (reference operation.md §12.3).
 */
import type { Counter as CounterType, Gauge as GaugeType, Histogram as HistogramType } from "prom-client";
import counter from "prom-client/lib/counter.js";
import gauge from "prom-client/lib/gauge.js";
import histogram from "prom-client/lib/histogram.js";
import registry from "prom-client/lib/registry.js";

/**
 * The parts of prom-client in use, loaded one by one: its index also loads the cluster, push-gateway and tracing code, 18 MB
 * that never run here (docs/dependencies.md). The paths are internal to prom-client, which is why its version is pinned exactly.
 */
const Registry: typeof import("prom-client").Registry = registry;
const Counter: typeof import("prom-client").Counter = counter;
const Gauge: typeof import("prom-client").Gauge = gauge;
const Histogram: typeof import("prom-client").Histogram = histogram;

/** How stable a family's name and labels are; `none` leaves the help text alone. */
type Stability = "ALPHA" | "BETA" | "STABLE" | "none";

export interface FamilyOptions {
  readonly name: string;
  readonly help: string;
  /** @default "ALPHA" */
  readonly stability?: Stability;
  /** The series of a family with labels appear on first use; a family without labels starts at 0. @default none */
  readonly labels?: readonly string[];
}

/** Reads a value at each scrape; `undefined` leaves the series out of that scrape. */
export type ReadValue = () => number | undefined | Promise<number | undefined>;

/** The same for a family with labels: the samples of this scrape. */
type ReadSamples = () => Promise<
  readonly { readonly labels: Readonly<Record<string, string>>; readonly value: number }[]
>;

export interface FamilyCounter {
  /** @param by @default 1 */
  inc(by?: number): void;
}

export interface MetricFamilies {
  counter(options: FamilyOptions): CounterType;
  /**
   * A counter with the label `ip_family`. The returned function gives the series of one IP family, which starts at 0:
   * `increase()` misses the first step of a series that begins with it.
   */
  familyCounter(options: Omit<FamilyOptions, "labels">): (family: "IPv4" | "IPv6") => FamilyCounter;
  gauge(options: FamilyOptions): GaugeType;
  histogram(options: FamilyOptions & { readonly buckets: readonly number[] }): HistogramType;
  /** An unlabelled family whose value is read at each scrape; a reader that throws counts as `undefined`. */
  scraped(type: "counter" | "gauge", options: FamilyOptions, read: ReadValue): void;
  /** A counter with labels whose values are read at each scrape; a reader that throws has none. */
  scrapedSamples(options: FamilyOptions, read: ReadSamples): void;
  /** Calls the listener for each family defined so far and from now on. */
  onDefine(listener: (stability: Stability) => void): void;
  /** All families with samples, by name, in the Prometheus text format 0.0.4. */
  render(): Promise<string>;
  readonly contentType: string;
}

/** Makes an empty set of families with its own registry. */
export function createFamilies(): MetricFamilies {
  const registry = new Registry();
  const defined: Stability[] = [];
  let announce: (stability: Stability) => void = () => {};

  function config(options: FamilyOptions) {
    const stability = options.stability ?? "ALPHA";
    defined.push(stability);
    announce(stability);
    const help = stability === "none" ? options.help : `[${stability}] ${options.help}`;
    return { name: options.name, help, labelNames: options.labels ?? [], registers: [registry] };
  }

  /** Reads a family again at each scrape. */
  function scraped(type: "counter" | "gauge", options: FamilyOptions, read: ReadSamples): void {
    const collect = async (): Promise<void> => {
      let isKnown = false;
      try {
        const samples = await read();
        family.reset();
        for (const { labels, value } of samples) family.inc(labels, value);
        isKnown = samples.length > 0;
      } catch {
        family.reset();
      }
      // A family without labels would show 0.
      if (!isKnown) family.remove({});
    };
    const family = new (type === "counter" ? Counter : Gauge)({ ...config(options), collect });
  }

  return {
    counter: (options) => new Counter(config(options)),
    familyCounter(options) {
      const counter = new Counter(config({ ...options, labels: ["ip_family"] }));
      return (family) => {
        const series = counter.labels({ ip_family: family });
        series.inc(0);
        return { inc: (by = 1) => series.inc(by) };
      };
    },
    gauge: (options) => new Gauge(config(options)),
    histogram: (options) => new Histogram({ ...config(options), buckets: [...options.buckets] }),
    scraped(type, options, read) {
      scraped(type, options, async () => {
        const value = await read();
        return value === undefined ? [] : [{ labels: {}, value }];
      });
    },
    scrapedSamples: (options, read) => scraped("counter", options, read),
    onDefine(listener) {
      announce = listener;
      for (const stability of defined) listener(stability);
    },
    async render() {
      const names = registry.getMetricsAsArray().map(({ name }) => name);
      const texts = await Promise.all(names.sort().map((name) => registry.getSingleMetricAsString(name)));
      return texts
        .filter(hasSamples)
        .map((text) => `${text}\n`)
        .join("");
    },
    contentType: registry.contentType,
  };
}

/** Whether there is more than the HELP and TYPE lines. */
function hasSamples(text: string): boolean {
  return text.indexOf("\n", text.indexOf("\n") + 1) >= 0;
}
