/** What the rules of a service port follow from, and how. */
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { RulesPlanner } from "../shared/iptables-rules/planned-rules.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import { planServicePort, planSharedRules } from "./plan-service-port.ts";

/** The objects of the model, which never change: they are kept to plan the same rules again. */
export interface PortInput {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
  readonly facts: PlanFacts;
}

/** The planner of one backend. */
export function portPlanner(config: PlanConfig): RulesPlanner<PortInput> {
  return {
    plan: ({ port, endpoints, facts }) => planServicePort(port, endpoints, config, facts),
    sharedRules: ({ port, endpoints, facts }) => planSharedRules(port, endpoints, config, facts),
  };
}
