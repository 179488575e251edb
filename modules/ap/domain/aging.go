package domain

import (
	"fmt"
	"regexp"
	"slices"
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

// Sums are the columns of a row's sums: the buckets and their total in document currency, then the same
// in functional currency.
func (b AgingBuckets) Sums() []string {
	names := append(b.Names(), "total")
	for _, name := range slices.Clone(names) {
		names = append(names, name+"_functional")
	}
	return names
}

// Columns of aging that say what a row is for.
const (
	AgingVendorID = "vendor_id"
	AgingCurrency = "currency"
)

// agingByVendor is the value of by that is no dimension, and what is asked for without one.
const agingByVendor = "vendor"

// agingDimension comes before the name of a dimension that by or a column has as well.
const agingDimension = "dimension:"

var dimensionName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,49}$`)

// AgingKey is what the rows of aging are for: vendors, or values of a dimension of documents.
type AgingKey struct {
	By        string // as it was asked for
	Dimension string // "": vendors
}

// ParseAgingKey reads "vendor", the name of a dimension, or "dimension:" and the name. A name that another
// column of the report has is taken in the second form only, as in "dimension:currency".
func ParseAgingKey(by string, b AgingBuckets) (AgingKey, bool) {
	if by == "" || by == agingByVendor {
		return AgingKey{By: agingByVendor}, true
	}
	name, qualified := strings.CutPrefix(by, agingDimension)
	taken := !qualified && slices.Contains(append(b.Sums(), AgingVendorID, AgingCurrency), name)
	return AgingKey{By: by, Dimension: name}, dimensionName.MatchString(name) && !taken
}

// Column is the name of the key's column. It has the dimension as it was asked for, so no other column
// has its name.
func (k AgingKey) Column() string {
	if k.Dimension == "" {
		return AgingVendorID
	}
	return k.By
}
