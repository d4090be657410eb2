/** Parses the Prometheus text format 0.0.4, strictly: throws where a scraper would reject it. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Family {
  readonly type: string;
  readonly help: string;
  readonly samples: Sample[];
}

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/y;
const SUFFIXES: Readonly<Record<string, readonly string[]>> = { histogram: ["_bucket", "_sum", "_count"] };

function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < text.length) {
    const match = LABEL.exec(text);
    if (match === null) throw new Error(`bad labels: {${text}}`);
    const [, name = "", value = ""] = match;
    labels[name] = value.replace(/\\(.)/g, (_all, character) => (character === "n" ? "\n" : character));
  }
  return labels;
}

/** @returns the families by name. Throws on a malformed line, a sample outside its family, or a repeated family. */
export function parseMetrics(text: string): ReadonlyMap<string, Family> {
  if (!text.endsWith("\n")) throw new Error("the last line has no end");
  const families = new Map<string, Family>();
  let help: RegExpExecArray | null = null;
  let current: { readonly name: string; readonly family: Family } | undefined;
  for (const line of text.slice(0, -1).split("\n")) {
    const type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line);
    if (line.startsWith("# HELP ")) {
      help = /^# HELP (\S+) (.*)$/.exec(line);
    } else if (type !== null) {
      const [, name = "", kind = ""] = type;
      if (help?.[1] !== name || families.has(name)) throw new Error(`misplaced or repeated family: ${line}`);
      current = { name, family: { type: kind, help: help[2] ?? "", samples: [] } };
      families.set(name, current.family);
    } else {
      const match = SAMPLE.exec(line);
      if (match === null || current === undefined) throw new Error(`bad line: ${JSON.stringify(line)}`);
      const [, name = "", labels = "", value = ""] = match;
      const { family } = current;
      const allowed = (SUFFIXES[family.type] ?? [""]).map((suffix) => `${current?.name}${suffix}`);
      if (!allowed.includes(name)) throw new Error(`sample ${name} in family ${current.name}`);
      family.samples.push({ name, labels: parseLabels(labels), value: value === "+Inf" ? Infinity : Number(value) });
    }
  }
  return families;
}
