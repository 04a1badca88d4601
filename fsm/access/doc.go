// Package access says who may do what: rules, roles and tokens as pure state, and decisions based on them. It does
// not know how a request carries a credential, or which route needs what; package web does.
//
//	rule.go    what a rule grants, and its text
//	policy.go  the rules of one principal, compiled for decisions
//	target.go  the addresses that checks may look at
//	token.go   tokens, and the text that clients present
//	sender.go  who sends an operation, in contexts and in the log
//	table.go   all roles and tokens of a cluster, and what changes them: change.go
package access
