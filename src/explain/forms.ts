/** An answer of `explain`, as text or as JSON. */
import type { PortExplanation } from "./explanation.ts";
import { jsonText, safe } from "./safe-text.ts";
import { familiesText, sentenceText, type TextOptions } from "./text.ts";

export interface Answer {
  /** The question as typed. */
  readonly what: string;
  /** How it relates to the service ports. */
  readonly because: readonly string[];
  readonly servicePorts: readonly PortExplanation[];
}

export function answerText(form: "text" | "json", answer: Answer, options: TextOptions = {}): string {
  const { because, servicePorts } = answer;
  if (form === "json") return jsonText(answer);
  const head = safe(because.map((sentence) => sentenceText(sentence, "", options.width)).join(""));
  const byPort = Map.groupBy(servicePorts, ({ servicePort, protocol }) => `${servicePort} ${protocol}`);
  const explanations = Array.from(byPort.values(), (families) => familiesText(families, options));
  return [head, ...explanations].filter((part) => part !== "").join("\n");
}
