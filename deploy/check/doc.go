// Package check has tests of what is deployed with the libraries of the programs that read it: the chart of deploy/helm is rendered
// by Helm's engine and decoded into Kubernetes' own types, the example of deploy/compose by Compose's loader, and what they start
// is started as processes. It is a module of its own for the sake of these libraries. It has no code but tests.
package check
