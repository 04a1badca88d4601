package fsm

import (
	"fmt"
	"reflect"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Describe names an operation and what it is about, for people: "register of ORDERS/orders-1".
func Describe(it Item) string {
	var name, about string
	if once, ok := it.KV.(kv.Once); ok {
		it.KV = once.Op
	}
	if it.KV != nil {
		name, about = kv.Operations.Name(it.KV), named(it.KV)
	} else if key, ok := registry.KeyOf(it.Op); ok {
		name, about = registry.Operations.Name(it.Op), key.String()
	} else {
		name, about = registry.Operations.Name(it.Op), named(it.Op)
	}
	if about == "" {
		return name
	}
	return name + " of " + about
}

// naming lists the fields that tell what an operation is about, the most telling first.
var naming = []string{"Key", "Handle", "ID", "Name", "Sender", "Peer", "DC", "Service", "Check", "Node", "Items", "Ops"}

// named returns the first of these fields that an operation has, as text, or "".
func named(op any) string {
	for _, field := range naming {
		switch f := reflect.ValueOf(op).FieldByName(field); {
		case !f.IsValid() || f.IsZero():
		case f.Kind() == reflect.Slice && f.Len() == 1 && f.Index(0).Kind() == reflect.Struct: // of one ending lease
			return named(f.Index(0).Interface())
		case f.Kind() == reflect.Slice:
			return fmt.Sprintf("%d %s", f.Len(), field)
		case f.Kind() == reflect.Pointer: // a service or node of the catalog
			return named(f.Elem().Interface())
		default:
			return fmt.Sprint(f.Interface())
		}
	}
	return ""
}
