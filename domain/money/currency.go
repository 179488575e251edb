package money

import (
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Currency is a currency or fund code in which amounts can be stated.
type Currency struct {
	Code      string    // ISO 4217 alphabetic code: EUR
	Number    string    // ISO 4217 numeric code, three digits: 978
	MinorUnit int       // decimals of an amount: 2 for EUR, 0 for JPY, 3 for KWD
	RetiredOn time.Time // first day (UTC) on which documents may not use it; zero while in use
}

// noMinorUnit marks metals, units of account and reserved codes: ISO 4217 lists
// them, but no amount can be stated in them.
const noMinorUnit = -1

// currencies holds the rows of the table by code. It is never changed after start.
var currencies = func() map[string]Currency {
	byCode := make(map[string]Currency, len(iso4217))
	for _, row := range iso4217 {
		c := Currency{Code: row.code, Number: row.number, MinorUnit: row.minorUnit}
		if row.retired != "" {
			day, err := time.Parse(time.DateOnly, row.retired)
			if err != nil {
				panic("money: currency table: " + err.Error())
			}
			c.RetiredOn = day
		}
		byCode[row.code] = c
	}
	return byCode
}()

// LookupCurrency finds a currency by its alphabetic code in capitals, as of the
// document date (the UTC date of on; the zero time asks without a date, so that
// retired currencies are found too). Unknown codes, currencies retired on that
// date and codes without a minor unit (gold, testing) are
// money.currency_unsupported.
func LookupCurrency(code string, on time.Time) (Currency, error) {
	c, known := currencies[code]
	switch {
	case !known:
		return Currency{}, fault.New(fault.Invalid, "money.currency_unsupported",
			"the currency is not in ISO 4217; send the code of three capital letters")
	case c.MinorUnit == noMinorUnit:
		return Currency{}, fault.New(fault.Invalid, "money.currency_unsupported",
			"%s has no minor unit, so no amount can be stated in it; use a currency", c.Code).
			With("currency", c.Code)
	case !c.RetiredOn.IsZero() && !on.UTC().Before(c.RetiredOn):
		return Currency{}, fault.New(fault.Invalid, "money.currency_unsupported",
			"%s was retired on %s; use its successor or correct the document date", c.Code, c.RetiredOn.Format(time.DateOnly)).
			With("currency", c.Code).With("retired_on", c.RetiredOn.Format(time.DateOnly))
	}
	return c, nil
}
