/**
 * Defines metric families the way Kubernetes components present them: help texts state the family's stability, families
 * without a sample are not printed, and definitions are counted (reference operation.md §12.3).
 */
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
type ReadSamples = () => Promise<readonly { readonly labels: Labels; readonly value: number }[]>;

type Labels = Readonly<Record<string, string | number>>;

interface Series {
  readonly labels: Labels;
  /** Of a histogram: the sum. */
  value: number;
  /** Of a histogram: how many values are in each bucket alone; the last has those above every bound. */
  readonly counts: number[];
}

/** The series of one name. Without labels there is one, which starts at 0. */
class Family {
  readonly name: string;
  readonly #head: string;
  readonly #type: "counter" | "gauge" | "histogram";
  readonly #labels: readonly string[];
  readonly #buckets: readonly number[];
  readonly #series = new Map<string, Series>();
  /** Reads the series again before they are printed. */
  collect: (() => Promise<void>) | undefined;

  constructor(
    name: string,
    help: string,
    type: "counter" | "gauge" | "histogram",
    labels: readonly string[],
    buckets: readonly number[] = [],
  ) {
    this.name = name;
    this.#head = `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}\n`;
    this.#type = type;
    this.#labels = labels;
    this.#buckets = buckets;
    this.reset();
  }

  inc(labels: Labels = {}, by = 1): void {
    if (this.#type === "counter" && !(by >= 0 && Number.isFinite(by)))
      throw new RangeError(`${this.name} counts, and cannot change by ${by}`);
    this.#at(labels).value += by;
  }

  set(...given: [value: number] | [labels: Labels, value: number]): void {
    const [labels, value] = given.length === 1 ? [{}, given[0]] : given;
    this.#at(labels).value = value;
  }

  /** Of a histogram. */
  observe(...given: [value: number] | [labels: Labels, value: number]): void {
    const [labels, value] = given.length === 1 ? [{}, given[0]] : given;
    if (!Number.isFinite(value)) throw new RangeError(`${this.name} cannot observe ${value}`);
    const series = this.#at(labels);
    series.value += value;
    let at = 0;
    while (value > (this.#buckets[at] ?? Number.POSITIVE_INFINITY)) at += 1;
    series.counts[at] = (series.counts[at] ?? 0) + 1;
  }

  reset(): void {
    this.clear();
    if (this.#labels.length === 0) this.#at({});
  }

  /** Leaves no series. */
  clear(): void {
    this.#series.clear();
  }

  #at(labels: Labels): Series {
    for (const name of Object.keys(labels)) {
      if (!this.#labels.includes(name)) throw new RangeError(`${this.name} has no label ${name}`);
    }
    let key = "";
    for (const name of this.#labels) key += `${labels[name] ?? ""}\0`;
    let series = this.#series.get(key);
    if (series === undefined) {
      series = { labels, value: 0, counts: new Array(this.#buckets.length + 1).fill(0) };
      this.#series.set(key, series);
    }
    return series;
  }

  /** The family in the Prometheus text format 0.0.4; empty without a sample. */
  async text(): Promise<string> {
    await this.collect?.();
    const lines = [...this.#series.values()].flatMap((series) => this.#linesOf(series));
    return lines.length === 0 ? "" : `${this.#head}${lines.join("")}`;
  }

  #linesOf({ labels, value, counts }: Series): readonly string[] {
    const line = (suffix: string, number: number, own: Labels = labels) =>
      `${this.name}${suffix}${labelsText(own)} ${numberText(number)}\n`;
    if (this.#type !== "histogram") return [line("", value)];
    let total = 0;
    const buckets = counts.map((count, at) => {
      total += count;
      return line("_bucket", total, { le: this.#buckets[at] ?? "+Inf", ...labels });
    });
    return [...buckets, line("_sum", value), line("_count", total)];
  }
}

function labelsText(labels: Labels): string {
  const texts = Object.entries(labels).map(
    ([name, value]) => `${name}="${escaped(String(value)).replaceAll('"', '\\"')}"`,
  );
  return texts.length === 0 ? "" : `{${texts.join(",")}}`;
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}

function numberText(number: number): string {
  return Math.abs(number) === Number.POSITIVE_INFINITY ? (number < 0 ? "-Inf" : "+Inf") : String(number);
}

export type MetricFamilies = ReturnType<typeof createFamilies>;

/** Makes an empty set of families. */
export function createFamilies() {
  const families = new Map<string, Family>();
  const defined: Stability[] = [];
  let announce: (stability: Stability) => void = () => {};

  function define(
    type: "counter" | "gauge" | "histogram",
    options: FamilyOptions,
    buckets?: readonly number[],
  ): Family {
    const { name, help, stability = "ALPHA", labels = [] } = options;
    if (families.has(name)) throw new RangeError(`the family ${name} is defined already`);
    defined.push(stability);
    announce(stability);
    const family = new Family(name, stability === "none" ? help : `[${stability}] ${help}`, type, labels, buckets);
    families.set(name, family);
    return family;
  }

  /** Reads a family again at each scrape. */
  function scraped(type: "counter" | "gauge", options: FamilyOptions, read: ReadSamples): void {
    const family = define(type, options);
    family.collect = async () => {
      try {
        const samples = await read();
        family.clear();
        for (const { labels, value } of samples) family.inc(labels, value);
      } catch {
        family.clear();
      }
    };
  }

  return {
    counter: (options: FamilyOptions) => define("counter", options),
    /**
     * A counter with the label `ip_family`. The returned function gives the series of one IP family, which starts at 0:
     * `increase()` misses the first step of a series that begins with it.
     */
    familyCounter(options: Omit<FamilyOptions, "labels">) {
      const counter = define("counter", { ...options, labels: ["ip_family"] });
      return (family: "IPv4" | "IPv6") => {
        const series = { ip_family: family };
        counter.inc(series, 0);
        return { inc: (by = 1): void => counter.inc(series, by) };
      };
    },
    gauge: (options: FamilyOptions) => define("gauge", options),
    histogram: ({ buckets, ...options }: FamilyOptions & { readonly buckets: readonly number[] }) =>
      define("histogram", options, buckets),
    /** An unlabelled family whose value is read at each scrape; a reader that throws counts as `undefined`. */
    scraped(type: "counter" | "gauge", options: FamilyOptions, read: ReadValue): void {
      scraped(type, options, async () => {
        const value = await read();
        return value === undefined ? [] : [{ labels: {}, value }];
      });
    },
    /** A counter with labels whose values are read at each scrape; a reader that throws has none. */
    scrapedSamples: (options: FamilyOptions, read: ReadSamples): void => scraped("counter", options, read),
    /** Calls the listener for each family defined so far and from now on. */
    onDefine(listener: (stability: Stability) => void): void {
      announce = listener;
      for (const stability of defined) listener(stability);
    },
    /** All families with samples, by name, in the Prometheus text format 0.0.4. */
    async render(): Promise<string> {
      const sorted = [...families.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
      return (await Promise.all(sorted.map((family) => family.text()))).join("");
    },
    contentType: "text/plain; version=0.0.4; charset=utf-8",
  };
}
