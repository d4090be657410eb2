/** An answer of `explain` in each output form. */
import type { PortExplanation } from "./explanation.ts";
import { pictureOf } from "./picture.ts";
import { jsonText, safe } from "./safe-text.ts";
import { svgText } from "./svg.ts";
import { familiesText, sentenceText, type TextOptions } from "./text.ts";

export const FORMS = ["text", "json", "svg"] as const;
export type Form = (typeof FORMS)[number];

export interface Answer {
  /** The question as typed. */
  readonly what: string;
  /** How it relates to the service ports. */
  readonly because: readonly string[];
  readonly servicePorts: readonly PortExplanation[];
}

export function answerText(form: Form, answer: Answer, options: TextOptions = {}): string {
  const { because, servicePorts } = answer;
  if (form === "json") return jsonText(answer);
  if (form === "svg") return svgText(servicePorts.map((one, index) => pictureOf(one, `p${index}`)));
  const head = safe(because.map((sentence) => sentenceText(sentence, "", options.width)).join(""));
  const byPort = Map.groupBy(servicePorts, ({ servicePort, protocol }) => `${servicePort} ${protocol}`);
  const explanations = Array.from(byPort.values(), (families) => familiesText(families, options));
  return [head, ...explanations].filter((part) => part !== "").join("\n");
}
