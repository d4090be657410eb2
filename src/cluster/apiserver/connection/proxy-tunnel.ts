/** Connections to a proxy before there is a tunnel through them, which Node.js gives to no one. */
import type { Agent } from "node:https";
import type { Duplex } from "node:stream";

/**
 * Tells of each connection to the proxy as it is begun. When no tunnel comes of it, Node.js leaves it open, and an error of it would end
 * the process.
 */
export function followTunnels(agent: Agent, onBegun: (connection: Duplex) => void): void {
  const create = agent.createConnection.bind(agent);
  agent.createConnection = (options, callback) => {
    const connection = create(options, callback);
    if (connection) {
      connection.on("error", () => {});
      onBegun(connection);
    }
    return connection;
  };
}
