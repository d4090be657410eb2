/** The events that operators find on the Node and on Services (reference operation.md §13). */

import { type ConflictSummary, conflictText } from "../../model/owned-services.ts";
import type { EventFacts } from "../cluster/apiserver/events/event-object.ts";
import type { CostlyService } from "../sync/portions.ts";

/** An event about this node's start; `note` says what was started, or is the error's text. */
export function nodeEvent(
  nodeName: string,
  type: "Normal" | "Warning",
  reason: "Starting" | "IPVSDeprecation" | "FailedToStartProxierHealthcheck" | "FailedToStartMetricServer",
  note: string,
): EventFacts {
  return {
    regarding: { apiVersion: "v1", kind: "Node", name: nodeName },
    type,
    reason,
    action: "StartKubeProxy",
    note,
  };
}

/** A Service's health-check port cannot be opened on this node. @param service `namespace/name`. */
export function serviceHealthFailure(nodeName: string, service: string, port: number, error: Error): EventFacts {
  const note = `node ${nodeName} failed to start healthcheck "${service}" on port ${port}: ${error.message}`;
  return serviceWarning(service, "FailedToStartServiceHealthcheck", "Listen", note);
}

/** A Service took long to program; other changes may have had to wait for it. */
export function costlyService(nodeName: string, { service, servicePorts, milliseconds }: CostlyService): EventFacts {
  const cost = `programming this Service (service ports: ${servicePorts}) took ${(milliseconds / 1000).toFixed(1)} s`;
  const note = `node ${nodeName}: ${cost}; every change to it costs as much on every node: give it fewer ports`;
  return serviceWarning(service, "CostlyService", "ProgramService", note);
}

/** An object of a Service has an annotation that does not count. @param problem names the object, the annotation and the rule. */
export function misreadAnnotation(nodeName: string, service: string, problem: string): EventFacts {
  return serviceWarning(service, "InvalidAnnotation", "ReadObject", `node ${nodeName}: ${problem}`);
}

/** An endpoint answered none of its connections from this node, while others did. @param text a sentence. */
export function silentEndpoint(nodeName: string, service: string, text: string): EventFacts {
  return serviceWarning(service, "EndpointNeverAnswers", "Connect", `node ${nodeName}: ${text}`);
}

/** This node leaves out an endpoint of a Service, as it does not answer. @param text a sentence. */
export function leftEndpoint(nodeName: string, service: string, text: string): EventFacts {
  return serviceWarning(service, "EndpointLeftOut", "Connect", `node ${nodeName}: ${text}`);
}

/** A Service declares a frontend that belongs to another one. */
export function frontendConflict(nodeName: string, conflict: ConflictSummary): EventFacts {
  const note = `node ${nodeName}: ${conflictText(conflict)}`;
  return serviceWarning(conflict.first.loser.service, "FrontendConflict", "AssignFrontend", note);
}

function serviceWarning(service: string, reason: string, action: string, note: string): EventFacts {
  const [namespace = "", name = ""] = service.split("/");
  return { regarding: { apiVersion: "v1", kind: "Service", namespace, name }, type: "Warning", reason, action, note };
}
