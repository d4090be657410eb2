/** The fields in use of the API's messages, by their numbers in upstream's `generated.proto` files (reference operation.md §8.5). */
import { type Message, message } from "./decode.ts";

const EMPTY = message({});
const NAMED = message({ name: [1, "text"] });

export const LIST_META = message({ resourceVersion: [2, "text"], continue: [3, "text"] });
const OBJECT_META = message({
  name: [1, "text"],
  namespace: [3, "text"],
  uid: [5, "text"],
  resourceVersion: [6, "text"],
  deletionTimestamp: [9, EMPTY],
  labels: [11, "map"],
  annotations: [12, "map"],
});

export const TYPE_META = message({ kind: [2, "text"] });
/** What stands around each object. */
export const ENVELOPE = message({
  typeMeta: [1, TYPE_META],
  raw: [2, "bytes"],
  contentEncoding: [3, "text"],
});
export const WATCH_EVENT = message({ type: [1, "text"], object: [2, message({ raw: [1, "bytes"] })] });

const SERVICE_PORT = message({ name: [1, "text"], protocol: [2, "text"], port: [3, "int"], nodePort: [5, "int"] });
const SERVICE_SPEC = message({
  ports: [1, SERVICE_PORT, "list"],
  clusterIP: [3, "text"],
  type: [4, "text"],
  externalIPs: [5, "text", "list"],
  sessionAffinity: [7, "text"],
  loadBalancerSourceRanges: [9, "text", "list"],
  externalTrafficPolicy: [11, "text"],
  healthCheckNodePort: [12, "int"],
  sessionAffinityConfig: [14, message({ clientIP: [1, message({ timeoutSeconds: [1, "int"] })] })],
  clusterIPs: [18, "text", "list"],
  ipFamilies: [19, "text", "list"],
  internalTrafficPolicy: [22, "text"],
});
const INGRESS = message({ ip: [1, "text"], ipMode: [3, "text"] });

const ENDPOINT = message({
  addresses: [1, "text", "list"],
  conditions: [2, message({ ready: [1, "bool"], serving: [2, "bool"], terminating: [3, "bool"] })],
  nodeName: [6, "text"],
  hints: [8, message({ forZones: [1, NAMED, "list"], forNodes: [2, NAMED, "list"] })],
});

/** By kind. */
export const MESSAGES: ReadonlyMap<string, Message> = new Map([
  [
    "Service",
    message({
      metadata: [1, OBJECT_META],
      spec: [2, SERVICE_SPEC],
      status: [3, message({ loadBalancer: [1, message({ ingress: [1, INGRESS, "list"] })] })],
    }),
  ],
  [
    "EndpointSlice",
    message({
      metadata: [1, OBJECT_META],
      endpoints: [2, ENDPOINT, "list"],
      ports: [3, message({ name: [1, "text"], protocol: [2, "text"], port: [3, "int"] }), "list"],
      addressType: [4, "text"],
    }),
  ],
  ["ServiceCIDR", message({ metadata: [1, OBJECT_META], spec: [2, message({ cidrs: [1, "text", "list"] })] })],
  [
    "Node",
    message({
      metadata: [1, OBJECT_META],
      spec: [
        2,
        message({
          podCIDR: [1, "text"],
          taints: [5, message({ key: [1, "text"] }), "list"],
          podCIDRs: [7, "text", "list"],
        }),
      ],
      status: [3, message({ addresses: [5, message({ type: [1, "text"], address: [2, "text"] }), "list"] })],
    }),
  ],
  [
    "Status",
    message({
      message: [3, "text"],
      reason: [4, "text"],
      details: [5, message({ causes: [4, message({ reason: [1, "text"] }), "list"], retryAfterSeconds: [5, "int"] })],
      code: [6, "int"],
    }),
  ],
]);
