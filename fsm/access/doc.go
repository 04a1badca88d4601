// Package access says who may do what: rules, roles and tokens as pure state, and decisions by them. It does not know how a
// request carries a credential, or which route needs what; package web does.
//
//	rule.go    what a rule grants, and its text
//	policy.go  the rules of one principal, made ready for decisions
//	target.go  the addresses that checks may look at
//	token.go   tokens, and the text that clients present
//	sender.go  who sends an operation, as contexts and the log have it
//	table.go   all roles and tokens of a cluster, and what changes them: change.go
package access
