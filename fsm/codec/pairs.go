package codec

// Pair is a key with a text, as in metadata and headers. Their order is kept as given.
type Pair struct{ Key, Value string }

// Pairs walks pairs; an empty list is read as nil.
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
