// Package httpd is the HTTP face of a node: Eureka's REST protocol, Rollcall's own API under
// /v1/rollcall/, the dashboard, health and metrics, all over one [registry.Service].
//
// It routes, negotiates, bounds what it reads, maps errors to statuses and keeps ready documents per
// version of the registry. It does not know in which mode the node runs, who leads, or how an
// operation becomes durable; what it shows of the cluster it asks [Cluster] for. How documents look
// is the business of package httpd/eureka.
package httpd
