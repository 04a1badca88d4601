// Package check tests what is deployed with the libraries of the programs that read it: Helm's engine renders the
// chart of deploy/helm, which is decoded into Kubernetes' own types; Compose's loader reads the example of
// deploy/compose; and what they start is started as processes. It is a module of its own because of these libraries.
// It has no code but tests.
package check
