package codec

// Pair is a text by its key, as metadata and headers have them. The order is kept as it was given.
type Pair struct{ Key, Value string }

// Pairs walks pairs; none are nil.
func (c *Codec) Pairs(all *[]Pair) {
	n := c.Count(len(*all), 2) // two lengths
	if c.Reading() {
		*all = nil
		if n > 0 {
			*all = make([]Pair, n)
		}
	}
	for i := range *all {
		c.String(&(*all)[i].Key)
		c.String(&(*all)[i].Value)
	}
}
