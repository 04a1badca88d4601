package verdict

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// rank is the place, from 0, of a quantile among count values in ascending order: the nearest rank.
func rank(quantile float64, count int) int {
	return max(int(math.Ceil(quantile*float64(count)))-1, 0)
}

// spreadOf describes values, in any order.
func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(quantile float64) float64 { return sorted[rank(quantile, len(sorted))] }
	return Spread{
		Count: len(sorted), P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: sorted[len(sorted)-1],
	}
}

// buckets count values of a histogram, in µs.
type buckets map[int64]int

// spread describes the values in seconds.
func (b buckets) spread() Spread {
	values := slices.Sorted(maps.Keys(b))
	if len(values) == 0 {
		return Spread{}
	}
	upTo := make([]int, len(values)) // how many there are up to each value
	count := 0
	for i, v := range values {
		count += b[v]
		upTo[i] = count
	}
	at := func(quantile float64) float64 {
		i, _ := slices.BinarySearchFunc(upTo, rank(quantile, count)+1, cmp.Compare[int])
		return seconds(values[i])
	}
	return Spread{Count: count, P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: seconds(values[len(values)-1])}
}

func seconds(micros int64) float64 { return float64(micros) / 1e6 }
