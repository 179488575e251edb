package domain

import (
	"fmt"
	"strconv"
	"strings"
)

// DefaultAgingBuckets are the buckets of aging that is asked for without others.
const DefaultAgingBuckets = "30,60,90"

// Bounds of the buckets of aging.
const (
	MaxAgingBuckets = 12
	maxAgingDays    = 36_500
)

// AgingBuckets are the last days overdue of each bucket of aging but the last one, which has
// no end.
type AgingBuckets []int

// ParseAgingBuckets reads ascending numbers of days such as "30,60,90"; "" is the default.
func ParseAgingBuckets(text string) (AgingBuckets, bool) {
	if text == "" {
		text = DefaultAgingBuckets
	}
	var b AgingBuckets
	for part := range strings.SplitSeq(text, ",") {
		days, err := strconv.Atoi(part)
		if err != nil || days < 1 || days > maxAgingDays || (len(b) > 0 && days <= b[len(b)-1]) || len(b) == MaxAgingBuckets {
			return nil, false
		}
		b = append(b, days)
	}
	return b, true
}

// String writes the buckets as ParseAgingBuckets reads them.
func (b AgingBuckets) String() string {
	parts := make([]string, len(b))
	for i, days := range b {
		parts[i] = strconv.Itoa(days)
	}
	return strings.Join(parts, ",")
}

// Names are the columns of the buckets: not_due, 1-30, 31-60, 61-90, over_90.
func (b AgingBuckets) Names() []string {
	names, from := []string{"not_due"}, 1
	for _, days := range b {
		names = append(names, fmt.Sprintf("%d-%d", from, days))
		from = days + 1
	}
	return append(names, fmt.Sprintf("over_%d", from-1))
}
