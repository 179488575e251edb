package money

import "github.com/erpbackbone/backbone/domain/fault"

// Decimals allowed in numbers that are not amounts. Amounts take theirs from the
// currency.
const (
	QuantityDecimals = 10 // quantities and unit prices
	RateDecimals     = 12 // exchange rates
	PercentDecimals  = 6  // percents: tax rates, discounts, withholding
	rateWholeDigits  = 10 // a rate is stored with 22 digits, 12 of them decimals
)

// CheckAmount checks that the number may be an amount of the currency:
// at most its minor unit in decimals, as written (money.scale with the attributes
// currency, allowed, got), and at most 15 significant digits (money.too_large).
// Fewer decimals are fine.
func CheckAmount(n Number, c Currency) error {
	if got := n.Scale(); got > c.MinorUnit {
		return fault.New(fault.Invalid, "money.scale",
			"an amount in %s has at most %d decimals, this one has %d; send it rounded to the currency", c.Code, c.MinorUnit, got).
			With("currency", c.Code).With("allowed", c.MinorUnit).With("got", got)
	}
	return checkDigits(n)
}

// CheckNonNegative refuses a negative number with money.negative, for fields whose
// direction is given by a side or a document type.
func CheckNonNegative(n Number) error {
	if n.Sign() < 0 {
		return fault.New(fault.Invalid, "money.negative",
			"this number may not be negative; send its absolute value and give the direction by side or document type")
	}
	return nil
}

// CheckQuantity checks that the number may be a quantity or a unit price:
// up to 10 decimals (money.scale) and 15 significant digits (money.too_large).
func CheckQuantity(n Number) error { return checkDecimals(n, QuantityDecimals) }

// CheckPercent checks that the number may be a percent: up to 6 decimals
// (money.scale) and 15 significant digits (money.too_large).
func CheckPercent(n Number) error { return checkDecimals(n, PercentDecimals) }

// CheckRate checks that the number may be an exchange rate: greater than 0
// (money.not_positive), up to 12 decimals (money.scale), 15 significant digits and
// 10 digits before the point (money.too_large).
func CheckRate(n Number) error {
	if n.Sign() <= 0 {
		return fault.New(fault.Invalid, "money.not_positive", "a rate is greater than 0; send the units of the target currency per unit of the source currency")
	}
	if err := checkDecimals(n, RateDecimals); err != nil {
		return err
	}
	if whole := n.digits() - n.Scale(); whole > rateWholeDigits {
		return fault.New(fault.Invalid, "money.too_large",
			"a rate has at most %d digits before the point; quote it the other way round", rateWholeDigits).
			With("allowed", rateWholeDigits).With("got", whole)
	}
	return nil
}

func checkDecimals(n Number, allowed int) error {
	if got := n.Scale(); got > allowed {
		return fault.New(fault.Invalid, "money.scale",
			"this number has at most %d decimals, got %d; send it with fewer", allowed, got).
			With("allowed", allowed).With("got", got)
	}
	return checkDigits(n)
}

func checkDigits(n Number) error {
	if got := n.digits(); got > MaxDigits {
		return tooLarge(MaxDigits, got)
	}
	return nil
}
