/** The word in `nodePortAddresses` that stands for the node's own primary addresses. */
export const NODE_PORT_ADDRESSES_PRIMARY = "primary";
