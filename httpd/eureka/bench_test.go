package eureka_test

import (
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

func benchmarkAppend(b *testing.B, f eureka.Format) {
	l := orders1()
	dst := eureka.AppendInstance(nil, f, l, l.RenewedAt)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		dst = eureka.AppendInstance(dst[:0], f, l, l.RenewedAt)
	}
}

func BenchmarkAppendInstanceJSON(b *testing.B)    { benchmarkAppend(b, full) }
func BenchmarkAppendInstanceXML(b *testing.B)     { benchmarkAppend(b, inXML) }
func BenchmarkAppendInstanceCompact(b *testing.B) { benchmarkAppend(b, compact) }

func benchmarkDecode(b *testing.B, file string) {
	body := fixture(b, file)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := eureka.DecodeRegistration(body, formatOf(file), "ORDERS"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeInstanceJSON(b *testing.B) { benchmarkDecode(b, "register-netflix.json") }
func BenchmarkDecodeInstanceXML(b *testing.B)  { benchmarkDecode(b, "register-netflix.xml") }

func BenchmarkDecodeBatch(b *testing.B) {
	body := fixture(b, "batch-request.json")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := eureka.DecodeBatch(body); err != nil {
			b.Fatal(err)
		}
	}
}
