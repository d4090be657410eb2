/** What health reports of a daemon with which all is well. */
import type { HealthVerdict } from "../health/proxy-health.ts";

export const HEALTHY: HealthVerdict = {
  nowMs: 0,
  isHealthy: true,
  isNodeEligible: true,
  isReached: true,
  families: [],
  failures: [],
  degraded: [],
};
