/**
 * fast-check for all property tests, with a run's settings. A failure shows its seed; `KPTS_PROPERTY_SEED=SEED npm test
 * -- FILE` repeats it. `KPTS_PROPERTY_SCALE=10` tries ten times as many histories.
 */
import fc from "fast-check";

function numberFrom(name: string): number | undefined {
  const text = process.env[name];
  if (text === undefined) return undefined;
  if (!/^-?\d+$/.test(text)) throw new Error(`${name} is ${text}, and must be a whole number`);
  return Number(text);
}

const seed = numberFrom("KPTS_PROPERTY_SEED");
fc.configureGlobal({ ...fc.readConfigureGlobal(), includeErrorInReport: true, ...(seed !== undefined && { seed }) });

/**
 * Number of histories to try.
 * @param variable environment variable that sets it.
 * @param usual without it.
 */
export function historyRuns(variable: string, usual: number): number {
  return numberFrom(variable) ?? usual * (numberFrom("KPTS_PROPERTY_SCALE") ?? 1);
}

export default fc;
