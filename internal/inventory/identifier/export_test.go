package identifier

var CheckCharacters = checkCharacters
