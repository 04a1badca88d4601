// Package probe runs the HTTP and TCP checks of services and nodes, on the node that leads: it asks at each
// check's interval, and tells the registry when the answer changes its state. What is counted is told
// here (how many equal results change a state); whoever leads next counts anew.
//
// The addresses come from clients. A server that asked whatever it is told to ask would be their way to
// its own machine and its cloud's metadata, so what an address resolves to is judged before a connection
// is made (guard.go).
//
// The rules are those of Consul's agent (agent/checks/check.go).
package probe
