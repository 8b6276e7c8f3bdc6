package wire

// numberPart is what the last byte of a number was.
type numberPart uint8

const (
	numberSign numberPart = iota
	numberZero
	numberDigit
	numberPoint
	numberFraction
	numberE
	numberESign
	numberExponent
)

// begin takes the first byte of a number; false if it is none.
func (n *numberPart) begin(c byte) bool {
	switch {
	case c == '-':
		*n = numberSign
	case c == '0':
		*n = numberZero
	case '1' <= c && c <= '9':
		*n = numberDigit
	default:
		return false
	}
	return true
}

// next takes another byte; false if it is no part of the number.
func (n *numberPart) next(c byte) bool {
	digit, was := '0' <= c && c <= '9', *n
	switch {
	case was == numberSign && digit:
		return n.begin(c)
	case was == numberDigit && digit:
	case c == '.' && (was == numberZero || was == numberDigit):
		*n = numberPoint
	case digit && (was == numberPoint || was == numberFraction):
		*n = numberFraction
	case c|0x20 == 'e' && (was == numberZero || was == numberDigit || was == numberFraction):
		*n = numberE
	case (c == '+' || c == '-') && was == numberE:
		*n = numberESign
	case digit && (was == numberE || was == numberESign || was == numberExponent):
		*n = numberExponent
	default:
		return false
	}
	return true
}

// whole reports whether the number may end here.
func (n *numberPart) whole() bool {
	switch *n {
	case numberZero, numberDigit, numberFraction, numberExponent:
		return true
	}
	return false
}
