/** Results of the tests inside the virtual machine, as lines among the output that the host reads. */

export interface InnerResult {
  /** Relative to the checkout. */
  readonly file: string;
  /** `suite › test`. */
  readonly title: string;
  readonly outcome: "passed" | "failed" | "skipped";
  /** Why it was skipped, or the error with its stack. */
  readonly reason?: string;
  readonly durationMs: number;
}

/** No test prints this by accident. */
const MARK = "\u001ekpts-result ";

export function resultLine(result: InnerResult): string {
  return `\n${MARK}${JSON.stringify(result)}\n`;
}

/** The result in a line, or undefined for other output. */
export function parseResultLine(line: string): InnerResult | undefined {
  return line.startsWith(MARK) ? (JSON.parse(line.slice(MARK.length)) as InnerResult) : undefined;
}
