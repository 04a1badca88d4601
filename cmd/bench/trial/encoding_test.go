package trial

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestEncodingOfFrequentRecordsIsAnArray(t *testing.T) {
	cases := []struct {
		name  string
		value any
		want  string
	}{
		{"a call", Call{"own-3", 12, 1, Look, 7, NotFound, 14_123_456, 14_124_268}, `["own-3",12,1,"l",7,"f",14123456,812]`},
		{"an unanswered call", Call{"shared-1", 2, 0, Write, 9, Unknown, 100, math.MaxInt64}, `["shared-1",2,0,"w",9,"u",100,-1]`},
		{"a list", List{Node: 2, Asked: 100, Answered: 350, Listed: 300, Ghosts: 1, Missing: 2, Behind: 3, Unhealed: 4}, `[2,100,250,false,300,1,2,3,4]`},
		{"a list with what is back", List{Asked: 100, Answered: 350, Back: []string{"a", "b"}}, `[0,100,250,false,0,0,0,0,0,["a","b"]]`},
		{"a failed list", List{Node: 1, Asked: -5, Answered: 5, Failed: true}, `[1,-5,10,true,0,0,0,0,0]`},
		{"a sighting", Sighting{0, 2, ByStale, 1000, -1}, `[0,2,"stale read",1000,-1]`},
		{"a list that did not come, whose reader misses all", List{Node: 1, Asked: 5, Answered: 9, Failed: true, Missing: 7}, `[1,5,4,true,0,0,7,0,0]`},
		{"a client", Client{Fetch, 2, 30, 29, 1_500_000, true}, `["fetch",2,30,29,1500000,true]`},
		{"a write of a sealed instance", SealWrite{Node: 1, Outcome: Done, Called: 100, Returned: 350}, `[false,1,"d",false,100,250]`},
		{"its cancel", SealWrite{Cancel: true, Node: 2, Outcome: Refused, Doubtful: true, Called: -5, Returned: 5}, `[true,2,"r",true,-5,10]`},
		{"one that was never answered", SealWrite{Outcome: Unknown, Called: 100, Returned: math.MaxInt64}, `[false,0,"u",false,100,-1]`},
		{"a sealed instance", Sealed{ID: "s", Writes: []SealWrite{{Outcome: NotFound, Called: 1, Returned: 2}}}, `{"id":"s","writes":[[false,0,"f",false,1,1]]}`},
		{"a departure", Departure{"i-1", true, 1000, 2, 3000}, `["i-1",true,1000,2,3000]`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text, err := json.Marshal(c.value)
			need.That(t, err == nil && string(text) == c.want, "encoded: %s, %v; want %s", text, err, c.want)
			back := reflect.New(reflect.TypeOf(c.value))
			need.OK(t, json.Unmarshal(text, back.Interface()))
			expect.Deep(t, back.Elem().Interface(), c.value, "decoded:")
		})
	}
}

func TestEncodingKeepsEveryActionAndOutcome(t *testing.T) {
	for _, action := range []Action{Write, Remove, Look} {
		for _, outcome := range []Outcome{Done, NotFound, Refused, Unreached, Unknown} {
			want := Call{Key: "k", Action: action, Outcome: outcome}
			text := need.Got(json.Marshal(want))(t)
			var got Call
			err := json.Unmarshal(text, &got)
			expect.That(t, err == nil && got == want, "%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestDecodingRefusesAnArrayOfAnotherLength(t *testing.T) {
	for _, c := range []struct {
		text string
		into any
		want string
	}{
		{`["k",1,2]`, new(Call), "not 8"},
		{`["k",1,2,"l",3,"d",4,5,6]`, new(Call), "not 8"},
		{`["fetch",1,2,3]`, new(Client), "not 6"},
		{`[false,1,"d",false,100]`, new(SealWrite), "not 6"},
	} {
		expect.ErrorSays(t, json.Unmarshal([]byte(c.text), c.into), c.want, "%s read as %T:", c.text, c.into)
	}
}

func TestColumnIsFoundByItsNameAndPromisesNothingIfItIsUnknown(t *testing.T) {
	described := need.Got(scenario.FindColumn("mine=ap"))(t)
	c := &Comparison{Plan: Plan{Columns: append(scenario.Columns(), described)}}
	expect.Equal(t, c.Column("mine").Mode, scenario.AP, "mode of mine:")
	expect.Equal(t, c.Column("eureka").System, scenario.Eureka, "system of eureka:")
	unknown := c.Column("gone")
	expect.That(t, unknown.Name == "gone" && unknown.Title == "gone" && !unknown.Promises(), "an unknown column is %+v, want one that promises nothing", unknown)
}
