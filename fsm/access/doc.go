// Package access says who may do what: rules, roles and tokens as pure state, and decisions by them. It does not know how a
// request carries a credential, or which route needs what; package web does.
//
//	rule.go    what a rule grants, and its text
//	policy.go  the rules of one principal, made ready for decisions
//	token.go   tokens, and the text that clients present
//	table.go   all roles and tokens of a cluster, and how they change
package access
